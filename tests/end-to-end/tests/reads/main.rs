//! What plugins see of a cluster, and what wakes them: the guest `reader`, installed once or twice, on a simulated
//! cluster.

mod simulated;
mod stage;
