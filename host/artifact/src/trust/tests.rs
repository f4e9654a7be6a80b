//! Tests of the decision.
