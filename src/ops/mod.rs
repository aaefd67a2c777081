//! One file a verb: calls the rooms below in order.
