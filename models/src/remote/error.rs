//! Why a server wrote nothing.

use std::time::Duration;

/// An error from a remote generator. No message holds the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The address is none that can be used.
    #[error(
        "{url}: {problem}; expected http://HOST:PORT/v1 or https://HOST/v1, with #MODEL behind it where the server has several"
    )]
    Address {
        /// The address as given.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The key would go over the network in the clear.
    #[error(
        "{url}: a key is set in {variable}, and over http to another machine it would be readable on the way; use https, or unset the variable"
    )]
    KeyInTheClear {
        /// The address.
        url: String,
        /// Environment variable that holds the key.
        variable: String,
    },
    /// The key is no text that a header can hold.
    #[error("the key in {variable} holds characters that no header can carry; set it again")]
    Key {
        /// Environment variable that holds the key.
        variable: String,
    },
    /// Nothing answers there.
    #[error(
        "{url}: cannot be reached after {attempts} attempts: {problem}; is the server running?"
    )]
    Unreachable {
        /// The address.
        url: String,
        /// How often it was tried.
        attempts: u32,
        /// The last reason.
        problem: String,
    },
    /// No answer in time.
    #[error("{url}: no answer within {} s; ask for less, or give it more time", limit.as_secs())]
    TimedOut {
        /// The address.
        url: String,
        /// The limit.
        limit: Duration,
    },
    /// The server says no.
    #[error("{url}: refused with status {status}: {message}; {advice}")]
    Refused {
        /// The address.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's own words, cut to a readable length.
        message: String,
        /// What to do about it.
        advice: String,
    },
    /// The server stayed busy or broken.
    #[error("{url}: status {status} after {attempts} attempts: {message}; try again later")]
    Busy {
        /// The address.
        url: String,
        /// The last HTTP status.
        status: u16,
        /// How often it was tried.
        attempts: u32,
        /// The server's own words, cut to a readable length.
        message: String,
    },
    /// The answer is not what the protocol has.
    #[error("{url}: {problem}; is this an OpenAI-compatible server?")]
    Protocol {
        /// The address.
        url: String,
        /// What came and what was expected.
        problem: String,
    },
    /// The server broke the answer off.
    #[error("{url}: the answer broke off: {problem}")]
    BrokenOff {
        /// The address.
        url: String,
        /// The reason.
        problem: String,
    },
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}
