"""The rules of answers: when a target was reached, which trials count, and how a ledger adds up."""
