//! Active replicas: they divide the objects by namespace, and whatever happens to one of them, no object is lost and no write
//! is repeated.

mod real;
mod simulated;
