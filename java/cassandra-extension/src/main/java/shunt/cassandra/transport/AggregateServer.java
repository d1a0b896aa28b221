package shunt.cassandra.transport;

import io.netty.channel.EventLoopGroup;
import java.lang.reflect.Field;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.cassandra.concurrent.ExecutorFactory;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.config.EncryptionOptions.TlsEncryptionPolicy;
import org.apache.cassandra.metrics.ClientMetrics;
import org.apache.cassandra.service.CassandraDaemon;
import org.apache.cassandra.service.NativeTransportService;
import org.apache.cassandra.service.StorageService;
import org.apache.cassandra.transport.AggregateContext;
import org.apache.cassandra.transport.AggregatePipeline;
import org.apache.cassandra.transport.Dispatcher;
import org.apache.cassandra.transport.Overdue;
import org.apache.cassandra.transport.Server;
import org.apache.cassandra.utils.FBUtilities;
import org.apache.cassandra.utils.MBeanWrapper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import shunt.cassandra.Settings;

/**
 * The second CQL port of a node. Opens and closes with the ordinary one, by {@link FollowedServers}; a port that cannot
 * be opened is logged, and leaves the node as it was.
 */
public final class AggregateServer
{
    private static final Logger LOGGER = LoggerFactory.getLogger(AggregateServer.class);

    private final Settings settings;
    private final Server server;
    private final FramePool pool;
    private final SupportedOffer offer;
    private final InlineStages stages = new InlineStages();
    private final PeerTraffic traffic;
    private final FramePool replicaPool;
    private final ReplicaRequests replicaRequests;
    private final ReplicaResponses replicaResponses;
    private volatile boolean accepting;
    private volatile Collection<Server> ordinary = List.of();

    private AggregateServer(Settings settings, NativeTransportService transport) throws ReflectiveOperationException
    {
        this.settings = settings;
        EventLoopGroup eventLoops = (EventLoopGroup) field(NativeTransportService.class, "workerGroup").get(transport);
        offer = SupportedOffer.install();
        AggregateMetrics metrics = new AggregateMetrics();
        pool = new FramePool(settings.threads(), TimeUnit.MILLISECONDS.toNanos(settings.slowQueryMs()),
                             TimeUnit.MILLISECONDS.toNanos(settings.frameTimeMs()),
                             executor("Shunt-Aggregate-Requests", settings.threads()), metrics.takenOver::mark);
        metrics.follow(pool::waiting, pool::slow);
        Dispatcher dispatcher = new Dispatcher(DatabaseDescriptor.useNativeTransportLegacyFlusher());
        TlsEncryptionPolicy policy = DatabaseDescriptor.getNativeProtocolEncryptionOptions().tlsEncryptionPolicy();
        traffic = new PeerTraffic(settings);
        metrics.follow(traffic::getDeferredWaiting);
        replicaPool = new FramePool(settings.threads(), TimeUnit.MILLISECONDS.toNanos(settings.slowQueryMs()),
                                              TimeUnit.MILLISECONDS.toNanos(settings.frameTimeMs()),
                                              executor("Shunt-Replica-Requests", settings.threads()), metrics.replicaTakenOver::mark);
        replicaRequests = new ReplicaRequests(replicaPool, settings.threads(), TimeUnit.MILLISECONDS.toNanos(settings.slowQueryMs()),
                                              metrics, traffic);
        metrics.follow(replicaRequests, replicaPool::slow);
        replicaResponses = new ReplicaResponses(traffic, metrics);
        MBeanWrapper.instance.registerMBean(traffic, "shunt.cassandra:type=PeerTraffic");
        AggregateContext context = new AggregateContext(settings, metrics, pool, dispatcher, traffic, new Overdue(), this::isAccepting);
        server = new Server.Builder().withEventLoopGroup(eventLoops)
                                     .withHost(DatabaseDescriptor.getRpcAddress())
                                     .withPort(settings.port())
                                     .withTlsEncryptionPolicy(policy)
                                     .withPipelineConfigurator(new AggregatePipeline(policy, context))
                                     .build();
    }

    /**
     * Threads that sleep when there is nothing to do. Those of Cassandra's shared pool look for work in ever other places
     * first, which costs as much as some queries, at the end of every frame.
     */
    private static Executor executor(String name, int threads)
    {
        // A worker is free a moment before its thread is.
        int most = FramePool.threadsMax(threads) + threads;
        return ExecutorFactory.Global.executorFactory().withJmx("transport").configurePooled(name, most)
                                     .withQueueLimit(0).withRejectedExecutionHandler(AggregateServer::refuse).build();
    }

    /** At once, whatever the queue: event loops give these threads work. The pool tries again. */
    private static void refuse(Runnable task, ThreadPoolExecutor executor)
    {
        throw new RejectedExecutionException("no thread is free");
    }

    /** Opens the second port with the native transport, which has started. Logs it when that is not possible. */
    static void install(Settings settings)
    {
        try
        {
            follow(settings);
        }
        catch (ReflectiveOperationException | RuntimeException | LinkageError e)
        {
            LOGGER.error("Aggregated frames are off: Cassandra {} is not as the extension expects it ({}). The node goes on without "
                         + "them", FBUtilities.getReleaseVersionString(), e.getMessage(), e);
        }
    }

    private static void follow(Settings settings) throws ReflectiveOperationException
    {
        CassandraDaemon daemon = (CassandraDaemon) field(StorageService.class, "daemon").get(StorageService.instance);
        NativeTransportService transport = daemon.nativeTransportService();
        Field servers = field(NativeTransportService.class, "servers");
        Field counted = field(ClientMetrics.class, "servers");
        @SuppressWarnings("unchecked")
        Collection<Server> ordinary = (Collection<Server>) servers.get(transport);
        AggregateServer aggregate = new AggregateServer(settings, transport);
        aggregate.ordinary = ordinary;
        FollowedServers followed = new FollowedServers(ordinary, aggregate.server, aggregate::start, aggregate::stop);
        servers.set(transport, followed);
        counted.set(ClientMetrics.instance, followed);
        followed.follow();
    }

    private static Field field(Class<?> of, String name) throws NoSuchFieldException
    {
        try
        {
            Field field = of.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        }
        catch (NoSuchFieldException e)
        {
            throw new NoSuchFieldException("there is no " + of.getSimpleName() + '.' + name);
        }
    }

    private void start()
    {
        try
        {
            server.start();
        }
        catch (RuntimeException e)
        {
            LOGGER.error("Aggregated frames are off: cannot listen on {}. The node goes on without them; give the extension "
                         + "another port, or free this one and run nodetool disablebinary and enablebinary",
                         server.socket, e);
            return;
        }
        OutboundBatch.install();
        stages.install(replicaRequests, replicaResponses);
        accepting = true;
        offer.announce(FrameLayout.offer(settings.frameQueriesMax(), settings.frameBytesMax(), settings.port()));
        LOGGER.info("Aggregated frames v1 on {} ({}): up to {} queries and {} bytes in a frame, {} threads, a query is slow "
                    + "after {} ms, those of a frame together after {} ms, {} clients on a connection, {} in all; stages READ, MUTATION and COUNTER_MUTATION are wrapped; Cassandra {}",
                    server.socket, server.tlsEncryptionPolicy.description(), settings.frameQueriesMax(),
                    settings.frameBytesMax(), settings.threads(), settings.slowQueryMs(), settings.frameTimeMs(), settings.clientsMax(),
                    settings.clientsTotalMax(), FBUtilities.getReleaseVersionString());
    }

    /**
     * Not as soon as an ordinary server stops: it waits until the executor of requests, which is that of queries of frames too,
     * has nothing to do, and must not wait for what comes here meanwhile.
     */
    private boolean isAccepting()
    {
        for (Server one : ordinary)
        {
            if (!one.isRunning())
                return false;
        }
        return accepting;
    }

    /** What is left of the time that stopping may take. */
    private static long leftNanos(long beganNanos)
    {
        return DatabaseDescriptor.getNativeTransportTimeout(TimeUnit.NANOSECONDS) - (System.nanoTime() - beganNanos);
    }

    /** Waits for the replicas of queries that no thread waits for, as long as there is time; tells whether all have answered. */
    private boolean awaitDeferred(long beganNanos)
    {
        return FramePool.await(() -> traffic.getDeferredWaiting() == 0, leftNanos(beganNanos));
    }

    /**
     * Frames that were taken are finished first; new ones are refused meanwhile, as Cassandra refuses requests. Both ports
     * together have {@code native_transport_timeout} for it.
     */
    private void stop(long beganNanos)
    {
        offer.withdraw();
        accepting = false;
        long left = leftNanos(beganNanos);
        boolean isIdle = pool.awaitIdle(left) && awaitDeferred(beganNanos);
        if (!isIdle)
            LOGGER.warn("Some aggregated frames took longer than the native transport timeout to complete");
        server.stop(!isIdle || left <= 0);
        stages.remove();
        // Their writes are none of Cassandra's stages, which it waits for before it closes the commit log.
        if (!replicaPool.awaitIdle(Math.max(TimeUnit.SECONDS.toNanos(1), leftNanos(beganNanos))))
            LOGGER.warn("Some reads or writes for other coordinators took longer than the native transport timeout to complete");
        OutboundBatch.uninstall();
        LOGGER.info("Aggregated frames: stopped listening on {}; the stages are as Cassandra made them", server.socket);
    }
}
