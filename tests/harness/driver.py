"""What every test with the Python driver tells it."""

# Suites share the processors with the ring, and nodes that start: reading the schema may take longer than the two seconds
# that are the driver's default.
PATIENT = {"control_connection_timeout": 20, "connect_timeout": 20}
