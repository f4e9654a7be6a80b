//! Many primaries want fields of one object that others own: what each gets, what it is told, and how many writes it
//! takes. The primaries are Shares, which contribute what they say as it is.

mod simulated;
