/** What only this package of Cassandra's sees of messages between nodes, and the extension needs. */
package org.apache.cassandra.net;
