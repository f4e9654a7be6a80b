//! Variables that nginx knows: those that both nginx 1.22 and the official images from 1.27 on define by themselves,
//! without directives that this plugin does not write.
//!
//! Source: the alphabetical index of variables in nginx's documentation; the oracle test checks each with a real nginx.

/// Variables of the http block by their whole names.
pub const HTTP: &[&str] = &[
    "ancient_browser",
    "args",
    "binary_remote_addr",
    "body_bytes_sent",
    "bytes_sent",
    "connection",
    "connection_requests",
    "connection_time",
    "connections_active",
    "connections_reading",
    "connections_waiting",
    "connections_writing",
    "content_length",
    "content_type",
    "date_gmt",
    "date_local",
    "document_root",
    "document_uri",
    "gzip_ratio",
    "host",
    "hostname",
    "http2",
    "https",
    "is_args",
    "limit_conn_status",
    "limit_rate",
    "limit_req_status",
    "modern_browser",
    "msec",
    "msie",
    "nginx_version",
    "pid",
    "pipe",
    "proxy_add_x_forwarded_for",
    "proxy_host",
    "proxy_port",
    "proxy_protocol_addr",
    "proxy_protocol_port",
    "proxy_protocol_server_addr",
    "proxy_protocol_server_port",
    "query_string",
    "realip_remote_addr",
    "realip_remote_port",
    "realpath_root",
    "remote_addr",
    "remote_port",
    "remote_user",
    "request",
    "request_body",
    "request_body_file",
    "request_completion",
    "request_filename",
    "request_id",
    "request_length",
    "request_method",
    "request_time",
    "request_uri",
    "scheme",
    "secure_link",
    "secure_link_expires",
    "server_addr",
    "server_name",
    "server_port",
    "server_protocol",
    "slice_range",
    "ssl_alpn_protocol",
    "ssl_cipher",
    "ssl_ciphers",
    "ssl_client_cert",
    "ssl_client_escaped_cert",
    "ssl_client_fingerprint",
    "ssl_client_i_dn",
    "ssl_client_raw_cert",
    "ssl_client_s_dn",
    "ssl_client_serial",
    "ssl_client_v_end",
    "ssl_client_v_remain",
    "ssl_client_v_start",
    "ssl_client_verify",
    "ssl_curve",
    "ssl_curves",
    "ssl_early_data",
    "ssl_protocol",
    "ssl_server_name",
    "ssl_session_id",
    "ssl_session_reused",
    "status",
    "tcpinfo_rcv_space",
    "tcpinfo_rtt",
    "tcpinfo_rttvar",
    "tcpinfo_snd_cwnd",
    "time_iso8601",
    "time_local",
    "uid_got",
    "uid_reset",
    "uid_set",
    "upstream_addr",
    "upstream_bytes_received",
    "upstream_bytes_sent",
    "upstream_cache_status",
    "upstream_connect_time",
    "upstream_header_time",
    "upstream_response_length",
    "upstream_response_time",
    "upstream_status",
    "uri",
];

/// Prefixes of the names of the http block's other variables; the rest of a name is arbitrary.
pub const HTTP_PREFIXES: &[&str] = &[
    "arg_",
    "cookie_",
    "http_",
    "sent_http_",
    "sent_trailer_",
    "upstream_cookie_",
    "upstream_http_",
    "upstream_trailer_",
];

/// Variables of the stream block.
pub const STREAM: &[&str] = &[
    "binary_remote_addr",
    "bytes_received",
    "bytes_sent",
    "connection",
    "hostname",
    "limit_conn_status",
    "msec",
    "nginx_version",
    "pid",
    "protocol",
    "proxy_protocol_addr",
    "proxy_protocol_port",
    "proxy_protocol_server_addr",
    "proxy_protocol_server_port",
    "realip_remote_addr",
    "realip_remote_port",
    "remote_addr",
    "remote_port",
    "server_addr",
    "server_port",
    "session_time",
    "ssl_preread_alpn_protocols",
    "ssl_preread_protocol",
    "ssl_preread_server_name",
    "status",
    "time_iso8601",
    "time_local",
    "upstream_addr",
    "upstream_bytes_received",
    "upstream_bytes_sent",
    "upstream_connect_time",
    "upstream_first_byte_time",
    "upstream_session_time",
];

/// Block of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// `http`.
    Http,
    /// `stream`.
    Stream,
}

impl Block {
    /// Reports whether the block has a variable of this name. Like nginx, it ignores case.
    pub fn knows(self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let (whole, prefixes) = match self {
            Self::Http => (HTTP, HTTP_PREFIXES),
            Self::Stream => (STREAM, [].as_slice()),
        };
        whole.binary_search(&name.as_str()).is_ok() || prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, HTTP, STREAM};

    #[test]
    fn the_lists_are_sorted_because_they_are_searched() {
        assert!(HTTP.is_sorted() && STREAM.is_sorted());
    }

    #[test]
    fn a_variable_is_known_by_its_whole_name_or_by_its_prefix() {
        for name in [
            "host",
            "HOST",
            "arg_anything",
            "http_x_forwarded_for",
            "upstream_http_etag",
        ] {
            assert!(Block::Http.knows(name), "{name}");
        }
        for name in ["noexists", "hos", "hosts", "1", "", "session_time", "arg"] {
            assert!(!Block::Http.knows(name), "{name}");
        }
        assert!(Block::Stream.knows("session_time"));
        assert!(!Block::Stream.knows("host") && !Block::Stream.knows("http_host"));
    }
}
