"""What we know of the other side: robots.txt, sessions and logins."""
