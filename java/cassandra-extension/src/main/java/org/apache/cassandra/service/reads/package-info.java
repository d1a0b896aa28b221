/** What only this package of Cassandra's sees of a distributed read, and the queries of frames need. */
package org.apache.cassandra.service.reads;
