"""What an approval is and when it counts: documents, authors of a change, the numbered verification steps."""
