"""The logical plan of a stream: its steps, what is known of the rows after each, and where each reports."""
