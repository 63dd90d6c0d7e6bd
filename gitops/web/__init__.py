"""Requests to services over HTTP, in one place: whom we talk to, how long, how much, and what is never said aloud."""
