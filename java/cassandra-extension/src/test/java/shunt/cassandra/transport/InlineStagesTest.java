package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.cassandra.concurrent.Stage;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Which thread does local work that a coordinator makes. */
class InlineStagesTest
{
    private final InlineStages stages = new InlineStages();

    @BeforeEach
    void install()
    {
        DatabaseDescriptor.clientInitialization(false);
        stages.install(null, null);
    }

    @AfterEach
    void remove()
    {
        InlineStages.leave();
        stages.remove();
    }

    private static Thread threadOf(Stage stage) throws Exception
    {
        CompletableFuture<Thread> ran = new CompletableFuture<>();
        stage.maybeExecuteImmediately(() -> ran.complete(Thread.currentThread()));
        return ran.get(180, TimeUnit.SECONDS);
    }

    @Test
    void aFramesThreadDoesItsLocalWork() throws Exception
    {
        InlineStages.enter();
        assertEquals(Thread.currentThread(), threadOf(Stage.READ));
        assertEquals(Thread.currentThread(), threadOf(Stage.MUTATION));
    }

    /** What Cassandra does next is to send the write to the other replicas; that must not wait for the local commit log. */
    @Test
    void orGoesOnWhileAnotherDoesItsWrites() throws Exception
    {
        InlineStages.enterWithoutWrites();
        CompletableFuture<Void> stalled = new CompletableFuture<>();
        CompletableFuture<Thread> ran = new CompletableFuture<>();
        Stage.MUTATION.maybeExecuteImmediately(() ->
        {
            ran.complete(Thread.currentThread());
            stalled.join();
        });
        stalled.complete(null);
        assertNotEquals(Thread.currentThread(), ran.get(180, TimeUnit.SECONDS));
        assertEquals(Thread.currentThread(), threadOf(Stage.READ));
    }
}
