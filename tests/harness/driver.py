"""Options of the Python driver that every test uses."""

from cassandra.cluster import Cluster, ExecutionProfile, Session
from cassandra.protocol import StartupMessage

# Other suites use the processors of the nodes: an answer may take longer than the default of ten seconds, above all to a
# change of the schema. A proxy of the tests gives up before. The driver's default is for statements without an execution
# profile; a profile has a default of its own, which replaces it.
ANSWER_SECONDS = 120
Session._default_timeout = ANSWER_SECONDS


def profile(**settings) -> ExecutionProfile:
    """A profile of the driver's defaults but for the time of an answer."""
    return ExecutionProfile(**{"request_timeout": ANSWER_SECONDS, **settings})


# Suites share the processors with the ring, and nodes that start: reading the schema may take longer than the two seconds
# that are the driver's default.
PATIENT = {"control_connection_timeout": 60, "connect_timeout": 60}
# For tests that neither stop nor kill the server which the driver is connected to: a late answer
# closes no connection.
UNDISTURBED = {**PATIENT, "idle_heartbeat_timeout": 180}


def named_connection(application: str) -> type:
    """A class of connections that send the name of an application in STARTUP, which this driver's own option does not do."""

    class NamedConnection(Cluster.connection_class):
        def send_msg(self, message, *arguments, **options):
            if isinstance(message, StartupMessage):
                message.options["APPLICATION_NAME"] = application
            return super().send_msg(message, *arguments, **options)

    return NamedConnection
