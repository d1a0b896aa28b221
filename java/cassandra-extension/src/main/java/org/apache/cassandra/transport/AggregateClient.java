package org.apache.cassandra.transport;

import io.netty.channel.Channel;
import org.apache.cassandra.auth.AuthenticatedUser;
import org.apache.cassandra.exceptions.InvalidRequestException;
import org.apache.cassandra.service.ClientState;

/** One client of a link: what an ordinary connection of its own would know. Has the link's role and no other. */
final class AggregateClient
{
    /** Clients are behind a link that is tracked already. */
    private static final class Untracked implements Connection.Tracker
    {
        private final Connection.Tracker link;

        Untracked(Connection.Tracker link)
        {
            this.link = link;
        }

        @Override
        public void addConnection(Channel channel, Connection connection)
        {
        }

        @Override
        public boolean isRunning()
        {
            return link.isRunning();
        }
    }

    private final ServerConnection link;
    private ServerConnection connection;
    /** The link's keyspace, as long as it is to be the client's and does not exist; else null. */
    private String missingKeyspace;

    AggregateClient(ServerConnection link)
    {
        this.link = link;
    }

    /**
     * The client's state, made by its first query: it starts with the link's role and keyspace.
     *
     * @throws ProtocolException when the client has used another version before
     * @throws org.apache.cassandra.exceptions.AuthenticationException when the role may no longer log in
     */
    synchronized ServerConnection connection(ProtocolVersion version)
    {
        if (connection == null)
            connection = open(version);
        else if (missingKeyspace != null && connection.getClientState().getRawKeyspace() == null)
            inheritKeyspace(connection.getClientState(), missingKeyspace);
        if (connection.getVersion() != version)
            throw new ProtocolException(String.format("Invalid message version. Got %s but previous messages of this client had version %s",
                                                      version, connection.getVersion()));
        return connection;
    }

    private ServerConnection open(ProtocolVersion version)
    {
        ServerConnection opened = new ServerConnection(link.channel(), version, new Untracked(link.getTracker()));
        ClientState from = link.getClientState();
        ClientState to = opened.getClientState();
        AuthenticatedUser user = from.getUser();
        if (user != null && !user.isAnonymous())
            to.login(user);
        if (from.getRawKeyspace() != null)
            inheritKeyspace(to, from.getRawKeyspace());
        from.getDriverName().ifPresent(to::setDriverName);
        from.getDriverVersion().ifPresent(to::setDriverVersion);
        from.getClientOptions().ifPresent(to::setClientOptions);
        opened.applyStateTransition(Message.Type.STARTUP, Message.Type.READY);
        return opened;
    }

    /**
     * The link's keyspace may have been dropped since its USE. Then the client has none, as if there had been no USE, until
     * there is such a keyspace again; queries that name theirs need none.
     */
    private void inheritKeyspace(ClientState state, String keyspace)
    {
        try
        {
            state.setKeyspace(keyspace);
            missingKeyspace = null;
        }
        catch (InvalidRequestException e)
        {
            missingKeyspace = keyspace;
        }
    }
}
