"""A stand-in for a Materialize target: PostgreSQL with the tables of its catalog, behind a proxy that knows its statements."""
