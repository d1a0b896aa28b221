"""What every test with the Python driver tells it."""

# Suites share the processors with the ring, and nodes that start: reading the schema may take longer than the two seconds
# that are the driver's default.
PATIENT = {"control_connection_timeout": 60, "connect_timeout": 60}
# For tests that neither stop nor kill the server which the driver is connected to: a late answer
# closes no connection.
UNDISTURBED = {**PATIENT, "idle_heartbeat_timeout": 180}
# Other suites use the processors of the nodes: an answer may take longer than the default of ten seconds, above all to a
# change of the schema. An execution profile has a limit of its own, which replaces the default of sessions.
ANSWER_SECONDS = 120
