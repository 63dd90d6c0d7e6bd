"""The schema and query languages: text to checked trees; pure."""
