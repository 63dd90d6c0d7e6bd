"""What forges say and are told, as functions of values: requests and answers, webhooks and their signatures. Pure."""
