//! Buffer, requests and flush.
