import com.datastax.driver.core.BoundStatement;
import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.PreparedStatement;
import com.datastax.driver.core.ProtocolVersion;
import com.datastax.driver.core.Session;
import com.scalar.db.api.DistributedTransaction;
import com.scalar.db.api.DistributedTransactionAdmin;
import com.scalar.db.api.DistributedTransactionManager;
import com.scalar.db.api.Get;
import com.scalar.db.api.Insert;
import com.scalar.db.api.Result;
import com.scalar.db.api.TableMetadata;
import com.scalar.db.api.Update;
import com.scalar.db.exception.transaction.CommitConflictException;
import com.scalar.db.exception.transaction.CrudConflictException;
import com.scalar.db.exception.transaction.TransactionException;
import com.scalar.db.io.DataType;
import com.scalar.db.io.Key;
import com.scalar.db.service.TransactionFactory;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Transfers between two of many accounts by threads that wait for each: by ScalarDB, and by transactions of a proxy over the same version of
 * Cassandra's Java driver. {@code java -cp LIBRARY/* Transfers.java PROXY NODES ACCOUNTS BALANCE REPLICAS}; both by their HOST:PORT, NODES with
 * commas between them, all on one port.
 *
 * <p>Takes lines from standard input: {@code run ARM CLIENTS WARM_UP_SECONDS SECONDS} is answered by a line {@code measuring} when the warm-up
 * is over and one with a JSON object in the end, {@code total} by the sum of ScalarDB's accounts.
 */
public class Transfers {
    private static final String KEYSPACE = "scalar_bank";
    private static final String TABLE = "accounts";
    private static final int AMOUNT = 1;
    /** Accounts that a transaction opens or reads where nothing is measured. */
    private static final int AT_ONCE = 50;
    private static final long PATIENCE_NS = 60_000_000_000L;

    /** One way to make a transfer. */
    interface Way {
        /** Moves the amount; how often it had to be begun anew. An exception: it is not known to be made. */
        int move(int payer, int payee) throws Exception;
    }

    private static int accounts;

    public static void main(String[] arguments) throws Exception {
        accounts = Integer.parseInt(arguments[2]);
        String[] proxy = arguments[0].split(":");
        Cluster cluster = Cluster.builder().addContactPoint(proxy[0]).withPort(Integer.parseInt(proxy[1]))
            .withProtocolVersion(ProtocolVersion.V4).withoutJMXReporting().build();
        DistributedTransactionManager manager = scalar(arguments[1].split(","), Integer.parseInt(arguments[3]), arguments[4]);
        Map<String, Way> ways = Map.of("java", shunt(cluster.connect()), "scalardb", (payer, payee) -> move(manager, payer, payee));
        System.out.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("total")) {
                System.out.println(total(manager));
            } else {
                run(ways.get(words[1]), Integer.parseInt(words[2]), Double.parseDouble(words[3]), Double.parseDouble(words[4]));
            }
        }
        System.exit(0);
    }

    // --- a transfer ------------------------------------------------------------------------------------------------------

    private static Way shunt(Session session) {
        PreparedStatement transfer = session.prepare("""
            BEGIN TRANSACTION
              LET payer = (SELECT balance FROM bank.accounts WHERE id = ?);
              LET payee = (SELECT balance FROM bank.accounts WHERE id = ?);
              IF payer.balance >= ? AND payee IS NOT NULL THEN
                UPDATE bank.accounts SET balance -= ? WHERE id = ?;
                UPDATE bank.accounts SET balance += ? WHERE id = ?;
              END IF
            COMMIT TRANSACTION""");
        return (payer, payee) -> {
            BoundStatement bound = transfer.bind(payer, payee, AMOUNT, AMOUNT, payer, AMOUNT, payee);
            var payload = session.execute(bound).getExecutionInfo().getIncomingPayload();
            if (payload == null || payload.get("shunt-applied").get(0) != 1) {
                throw new IllegalStateException("a transfer was not applied");
            }
            return 0;
        };
    }

    /** With what is in conflict begun anew, as ScalarDB's documentation tells applications to. */
    private static int move(DistributedTransactionManager manager, int payer, int payee) throws TransactionException {
        for (int again = 0; ; again++) {
            DistributedTransaction transaction = manager.begin();
            try {
                int from = balance(transaction, payer).orElseThrow();
                int to = balance(transaction, payee).orElseThrow();
                if (from < AMOUNT) {
                    throw new IllegalStateException("account " + payer + " has " + from);
                }
                transaction.update(update(payer, from - AMOUNT));
                transaction.update(update(payee, to + AMOUNT));
                transaction.commit();
                return again;
            } catch (CrudConflictException | CommitConflictException conflict) {
                transaction.rollback();
            } catch (TransactionException | RuntimeException error) {
                try {
                    transaction.rollback();
                } catch (TransactionException alsoThat) {
                    error.addSuppressed(alsoThat);
                }
                throw error;
            }
        }
    }

    private static Optional<Integer> balance(DistributedTransaction transaction, int id) throws TransactionException {
        Optional<Result> row = transaction.get(
            Get.newBuilder().namespace(KEYSPACE).table(TABLE).partitionKey(Key.ofInt("id", id)).build());
        return row.map(found -> found.getInt("balance"));
    }

    private static Update update(int id, int balance) {
        return Update.newBuilder().namespace(KEYSPACE).table(TABLE).partitionKey(Key.ofInt("id", id)).intValue("balance", balance).build();
    }

    /** ScalarDB with its defaults, but for the isolation; its accounts are opened. */
    private static DistributedTransactionManager scalar(String[] nodes, int balance, String replicas) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("scalar.db.storage", "cassandra");
        properties.setProperty("scalar.db.contact_points", String.join(",", Arrays.stream(nodes).map(node -> node.split(":")[0]).toList()));
        properties.setProperty("scalar.db.contact_port", nodes[0].split(":")[1]);
        properties.setProperty("scalar.db.username", "cassandra");
        properties.setProperty("scalar.db.password", "cassandra");
        properties.setProperty("scalar.db.transaction_manager", "consensus-commit");
        properties.setProperty("scalar.db.consensus_commit.isolation_level", "SERIALIZABLE");
        TransactionFactory factory = TransactionFactory.create(properties);
        Map<String, String> replication = Map.of("replication-strategy", "SimpleStrategy", "replication-factor", replicas);
        try (DistributedTransactionAdmin admin = factory.getTransactionAdmin()) {
            admin.createCoordinatorTables(true, replication);
            admin.createNamespace(KEYSPACE, true, replication);
            TableMetadata columns = TableMetadata.newBuilder().addColumn("id", DataType.INT).addColumn("balance", DataType.INT)
                .addPartitionKey("id").build();
            admin.createTable(KEYSPACE, TABLE, columns, true);
        }
        DistributedTransactionManager manager = factory.getTransactionManager();
        for (int first = 0; first < accounts; first += AT_ONCE) {
            DistributedTransaction transaction = manager.begin();
            for (int id = first; id < Math.min(accounts, first + AT_ONCE); id++) {
                transaction.insert(Insert.newBuilder().namespace(KEYSPACE).table(TABLE).partitionKey(Key.ofInt("id", id))
                    .intValue("balance", balance).build());
            }
            transaction.commit();
        }
        return manager;
    }

    /** Of all accounts, when nobody moves anything. What a broken-off transaction has left behind is undone or done meanwhile. */
    private static long total(DistributedTransactionManager manager) throws Exception {
        long sum = 0;
        long deadline = System.nanoTime() + PATIENCE_NS;
        for (int first = 0; first < accounts; first += AT_ONCE) {
            for (boolean read = false; !read; ) {
                DistributedTransaction transaction = manager.begin();
                try {
                    long part = 0;
                    for (int id = first; id < Math.min(accounts, first + AT_ONCE); id++) {
                        part += balance(transaction, id).orElseThrow();
                    }
                    transaction.commit();
                    sum += part;
                    read = true;
                } catch (TransactionException conflict) {
                    transaction.rollback();
                    if (System.nanoTime() > deadline) {
                        throw conflict;
                    }
                    Thread.sleep(100);
                }
            }
        }
        return sum;
    }

    // --- the load --------------------------------------------------------------------------------------------------------

    private static void run(Way way, int clients, double warmUpSeconds, double seconds) throws Exception {
        long begun = System.nanoTime() + (long) (warmUpSeconds * 1e9);
        long ends = begun + (long) (seconds * 1e9);
        AtomicLong conflicts = new AtomicLong();
        AtomicLong errors = new AtomicLong();
        List<long[]> latencies = new ArrayList<>();
        CountDownLatch left = new CountDownLatch(clients);
        for (int client = 0; client < clients; client++) {
            new Thread(() -> {
                long[] own = new long[1024];
                int count = 0;
                for (long now = System.nanoTime(); now < ends; ) {
                    int payer = ThreadLocalRandom.current().nextInt(accounts);
                    int payee = (payer + 1 + ThreadLocalRandom.current().nextInt(accounts - 1)) % accounts;
                    int again = 0;
                    boolean made = true;
                    try {
                        again = way.move(payer, payee);
                    } catch (Exception error) {
                        made = false;
                        if (errors.get() == 0) {
                            error.printStackTrace();
                        }
                    }
                    long asked = now;
                    now = System.nanoTime();
                    if (now < begun || now > ends) {
                        // Whatever goes wrong is told; else it is before or after.
                        errors.addAndGet(made ? 0 : 1);
                        continue;
                    }
                    conflicts.addAndGet(again);
                    errors.addAndGet(made ? 0 : 1);
                    if (made) {
                        own = count == own.length ? Arrays.copyOf(own, 2 * count) : own;
                        own[count++] = now - asked;
                    }
                }
                synchronized (latencies) {
                    latencies.add(Arrays.copyOf(own, count));
                }
                left.countDown();
            }).start();
        }
        Thread.sleep(Math.max(0, (begun - System.nanoTime()) / 1_000_000));
        System.out.println("measuring");
        left.await();
        long[] all = latencies.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        System.out.printf("{\"transfers\": %d, \"seconds\": %f, \"conflicts\": %d, \"errors\": %d, \"p50_us\": %s, \"p99_us\": %s}%n", all.length,
            seconds, conflicts.get(), errors.get(), quantile(all, 0.5), quantile(all, 0.99));
    }

    private static String quantile(long[] sorted, double share) {
        return sorted.length == 0 ? "null" : String.valueOf(sorted[(int) Math.min(sorted.length - 1, Math.floor(share * sorted.length))] / 1e3);
    }
}
