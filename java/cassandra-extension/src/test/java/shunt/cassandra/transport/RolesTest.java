package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Who may do what. */
class RolesTest
{
    private static final int UNAUTHORIZED = 0x2100;
    private static final int BAD_CREDENTIALS = 0x0100;

    @BeforeAll
    static void roles() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            for (String role : List.of("anna", "bert", "carl"))
            {
                assertNull(link.ask("CREATE ROLE IF NOT EXISTS " + role + " WITH PASSWORD = 'secret' AND LOGIN = true").error());
                link.ask("CREATE KEYSPACE IF NOT EXISTS of_" + role + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
                link.ask("CREATE TABLE IF NOT EXISTS of_" + role + ".t (k int PRIMARY KEY, v text)");
                assertNull(link.ask("INSERT INTO of_" + role + ".t (k, v) VALUES (1, '" + role + "')").error());
                assertNull(link.ask("GRANT SELECT ON KEYSPACE of_" + role + " TO " + role).error());
            }
        }
    }

    private static String select(String role)
    {
        return "SELECT v FROM of_" + role + ".t WHERE k = 1";
    }

    @Test
    void everyClientActsWithTheRoleOfItsLinkAndNoOther() throws IOException
    {
        try (LinkClient anna = LinkClient.login("anna", "secret"); LinkClient bert = LinkClient.login("bert", "secret"))
        {
            for (int round = 0; round < 20; round++)
            {
                // The same numbers on both links, in flight at the same time.
                for (LinkClient link : List.of(anna, bert))
                {
                    for (int client = 1; client <= 5; client++)
                        link.add(client, client, select("anna")).add(client + 10, client, select("bert"));
                    link.add(20, 1, "INSERT INTO of_anna.t (k, v) VALUES (2, '')").sendFrame();
                }
                check(anna.collect(11), 0, "anna", 10);
                check(bert.collect(11), 10, "bert", 0);
            }
        }
    }

    private static void check(Map<Integer, Answer> answers, int own, String role, int others)
    {
        for (int client = 1; client <= 5; client++)
        {
            assertEquals(List.of(role), answers.get(client + own).texts());
            assertEquals(UNAUTHORIZED, answers.get(client + others).code());
        }
        assertEquals(UNAUTHORIZED, answers.get(20).code());
    }

    @Test
    void aRevokedPermissionNoLongerHolds() throws IOException
    {
        try (LinkClient root = LinkClient.superuser(); LinkClient bert = LinkClient.login("bert", "secret"))
        {
            assertEquals(List.of("bert"), bert.answer(1, select("bert")).texts());
            assertNull(root.answer(1, "REVOKE SELECT ON KEYSPACE of_bert FROM bert").error());
            assertEquals(UNAUTHORIZED, bert.answer(1, select("bert")).code());
            assertNull(root.answer(1, "GRANT SELECT ON KEYSPACE of_bert TO bert").error());
            assertEquals(List.of("bert"), bert.answer(1, select("bert")).texts());
        }
    }

    @Test
    void aRoleThatIsDroppedDoesNothingMore() throws IOException
    {
        try (LinkClient root = LinkClient.superuser(); LinkClient carl = LinkClient.login("carl", "secret"))
        {
            assertEquals(List.of("carl"), carl.answer(1, select("carl")).texts());
            assertNull(root.answer(1, "DROP ROLE carl").error());
            assertEquals(UNAUTHORIZED, carl.answer(1, select("carl")).code());
            assertEquals(BAD_CREDENTIALS, carl.answer(2, select("carl")).code());
        }
        assertThrows(IOException.class, () -> LinkClient.login("carl", "secret"));
    }

    @Test
    void queriesAreAuditedWhoeverExecutesThem() throws IOException
    {
        CassandraProcess node = CassandraProcess.shared();
        node.storage("enableAuditLog", "FileAuditLogger", "", "", "", "", "", "");
        try (LinkClient anna = LinkClient.login("anna", "secret"))
        {
            anna.add(1, 1, "SELECT v FROM of_anna.t WHERE k = 4711").add(2, 1, "SELECT v FROM of_anna.t LIMIT 4712");
            anna.add(3, 1, "SELECT v FROM of_bert.t WHERE k = 4713").answers(3);
        }
        finally
        {
            node.storage("disableAuditLog");
        }
        for (String query : List.of("SELECT.*4711", "SELECT.*4712", "UNAUTHORIZED_ATTEMPT.*4713"))
            CassandraProcess.await(query, () -> Pattern.compile("user:anna.*" + query).matcher(node.log()).find());
    }
}
