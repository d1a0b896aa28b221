/** What only this package of Cassandra's sees of a distributed write, and the queries of frames need. */
package org.apache.cassandra.service;
