/** What only this package of Cassandra's sees of a statement, and the queries of frames need. */
package org.apache.cassandra.cql3.statements;
