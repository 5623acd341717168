"""The logical plan of a stream: its steps, the properties of the rows after each, and the folders for reports."""
