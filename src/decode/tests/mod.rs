//! What the decoder takes and refuses.
