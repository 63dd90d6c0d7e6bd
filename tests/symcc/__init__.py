"""The symbolic compiler of Cedar as an oracle for our evaluator of policies, each night."""
