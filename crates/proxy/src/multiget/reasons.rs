//! The reasons why a read of several partitions goes whole, from the start or after all; the
//! counters have these names.

use shunt_admin::labels;

labels! {
    /// The reason why such a read went whole from the start.
    pub enum Whole = "reason" {
        /// The request asks for a page other than the first.
        PagingState = "paging_state",
        /// SERIAL or LOCAL_SERIAL.
        Serial = "serial",
        /// The request is traced.
        Tracing = "tracing",
        /// The request has a custom payload.
        Payload = "payload",
        /// A parameter that parts cannot have, or an unknown one.
        Parameters = "parameters",
        /// Bind markers with names, or not those in the node's answer.
        Markers = "markers",
        /// A key that is null, unset, empty or not of its type; or one that equals another without
        /// being identical.
        Values = "values",
        /// A key in the text.
        Literals = "literals",
        /// The conditions are not those of one partition each.
        Where = "where",
        /// The column is of a type with an unknown order.
        Type = "type",
        /// A `LIMIT` that is not a positive number.
        Limit = "limit",
        /// The selection has other items than columns: a function, an aggregate, a field.
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
        /// The table is not known (yet), or its replicas are not.
        Schema = "schema",
        /// The ring's release is not known to answer keys in order.
        Version = "version",
        /// More keys than `multiget_keys_max`.
        Keys = "keys_max",
        /// The parts would take too many bytes.
        Bytes = "bytes",
        /// One key.
        OneKey = "one_key",
        /// One node has all keys: a replica of the first gets the whole.
        OneReplica = "one_replica",
        /// The number of such reads, parts or bytes has reached its bound.
        Busy = "busy",
        /// A link to one of the nodes is full or missing.
        NoLink = "no_link",
        /// The statement had to be sent whole a short time ago.
        Paused = "paused",
    }
}

labels! {
    /// The reason why a split read was sent whole after all.
    pub enum Lost = "reason" {
        /// The result has more rows than one page.
        Pages = "pages",
        /// Answers of too many bytes.
        Bytes = "bytes",
        /// Parts have different columns, or changed ones.
        Metadata = "metadata",
        /// An answer is no rows, or has more than rows.
        Unreadable = "unreadable",
        /// A node refused a part.
        Refused = "refused",
        /// A part could not be sent.
        Unsent = "unsent",
    }
}
