"""What computes: kernel tasks and the building blocks of the offline kernel proposer."""
