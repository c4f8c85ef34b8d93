//! The order of batches, and who may go when.
