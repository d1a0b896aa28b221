//! Why a read of several partitions goes whole, from the start or after all; counted by these
//! names.

use shunt_admin::labels;

labels! {
    /// Why such a read went whole from the start.
    pub enum Whole = "reason" {
        /// It asks for a page other than the first.
        PagingState = "paging_state",
        /// SERIAL or LOCAL_SERIAL.
        Serial = "serial",
        /// It is traced.
        Tracing = "tracing",
        /// It has a custom payload.
        Payload = "payload",
        /// A parameter that parts cannot have, or that is not known.
        Parameters = "parameters",
        /// Bind markers with names, or not those that the node told of.
        Markers = "markers",
        /// A key that is null, unset, empty, no value of its type, or one that equals another and
        /// is not the same.
        Values = "values",
        /// A key is written in the text.
        Literals = "literals",
        /// The conditions are not those of one partition each.
        Where = "where",
        /// The column is of a type whose order is not known.
        Type = "type",
        /// A `LIMIT` that is not a positive number.
        Limit = "limit",
        /// Something other than columns is selected: a function, an aggregate, a field.
        Selection = "selection",
        /// `SELECT JSON`
        Json = "json",
        /// `SELECT DISTINCT`
        Distinct = "distinct",
        /// `GROUP BY`
        GroupBy = "group_by",
        /// `ORDER BY`
        OrderBy = "order_by",
        /// `ALLOW FILTERING`
        Filtering = "allow_filtering",
        /// The table is not known (yet), or has no replicas that are.
        Schema = "schema",
        /// The ring is not of a release that is known to answer keys in order.
        Version = "version",
        /// More keys than `multiget_keys_max`.
        Keys = "keys_max",
        /// Its parts would be too many bytes.
        Bytes = "bytes",
        /// One key.
        OneKey = "one_key",
        /// One node has all keys: a replica of the first gets the whole.
        OneReplica = "one_replica",
        /// There are too many such reads, parts or bytes at a time.
        Busy = "busy",
        /// A link to one of the nodes is full, or there is none.
        NoLink = "no_link",
        /// The statement had to be sent whole after all a short time ago.
        Paused = "paused",
    }
}

labels! {
    /// Why a read that was split was sent whole after all.
    pub enum Lost = "reason" {
        /// There are more rows than one page has.
        Pages = "pages",
        /// Answers of too many bytes.
        Bytes = "bytes",
        /// Parts show other columns, or columns that have changed.
        Metadata = "metadata",
        /// An answer that is not rows, or has something beside them.
        Unreadable = "unreadable",
        /// A node refused a part.
        Refused = "refused",
        /// A part could not be sent.
        Unsent = "unsent",
    }
}
