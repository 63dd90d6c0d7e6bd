"""GitHub, github.com or Enterprise: requests and answers as pure functions, and the adapter over them."""
