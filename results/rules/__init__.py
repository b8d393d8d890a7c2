"""Rules for answers: when a target is reached, which trials count, and how a ledger adds up."""
