//! Header blocks: name-value pairs, compressed with one zlib stream per direction for the lifetime of the connection.

use std::sync::OnceLock;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::codec::Error;

/// Words of the protocol's compression dictionary, in which each word is preceded by its length.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status|200 OK|version HTTP/1.1 url public set-cookie \
    keep-alive origin";

/// The rest of the dictionary, which has no length prefixes.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
    Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct \
    Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
    charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// Maximum size of a header block after decompression.
const LONGEST: usize = 64 * 1024;

/// Lowercase header names and their values.
pub(crate) type Headers = Vec<(String, String)>;

/// The preset compression dictionary of SPDY/3.1.
pub(super) fn dictionary() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let mut bytes = Vec::new();
        // One word contains a space, so it is delimited by bars.
        for part in WORDS.split('|') {
            let words: Vec<&str> = match part {
                "200 OK" => vec![part],
                _ => part.split(' ').collect(),
            };
            for word in words {
                put(&mut bytes, word);
            }
        }
        bytes.extend_from_slice(TAIL.as_bytes());
        bytes
    })
}

fn put(out: &mut Vec<u8>, text: &str) {
    // Header values sent by the node are only a few bytes long, so the cast does not truncate.
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The compressor of one direction.
pub(super) struct Writer(Compress);

impl Writer {
    pub(super) fn new() -> Self {
        let mut stream = Compress::new(Compression::fast(), true);
        // Only fails if the stream has already been used.
        let _ = stream.set_dictionary(dictionary());
        Self(stream)
    }

    /// Encodes headers as a compressed block.
    pub(super) fn write(&mut self, headers: &Headers) -> Result<Vec<u8>, Error> {
        let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
        for (name, value) in headers {
            put(&mut plain, name);
            put(&mut plain, value);
        }
        let mut out = Vec::with_capacity(plain.len() + 64);
        let start = self.0.total_in();
        loop {
            let done = (self.0.total_in() - start) as usize;
            self.0
                .compress_vec(&plain[done..], &mut out, FlushCompress::Sync)
                .map_err(|_| Error::Headers)?;
            // Unused output space means that everything has been flushed.
            if out.len() < out.capacity() {
                return Ok(out);
            }
            out.reserve(256);
        }
    }
}

/// The decompressor of one direction.
pub(super) struct Reader(Decompress);

impl Reader {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Decodes the headers of a compressed block.
    pub(super) fn read(&mut self, mut block: &[u8]) -> Result<Headers, Error> {
        let mut plain = Vec::with_capacity(1024);
        while !block.is_empty() {
            let start = self.0.total_in();
            let result = self
                .0
                .decompress_vec(block, &mut plain, FlushDecompress::Sync);
            block = &block[(self.0.total_in() - start) as usize..];
            match result {
                Ok(_) if plain.len() > LONGEST => return Err(Error::Headers),
                Ok(_) if plain.len() == plain.capacity() => plain.reserve(4096),
                Ok(_) if self.0.total_in() == start => return Err(Error::Headers),
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0
                        .set_dictionary(dictionary())
                        .map_err(|_| Error::Headers)?;
                }
                Err(_) => return Err(Error::Headers),
            }
        }
        parse(&plain)
    }
}

fn parse(mut plain: &[u8]) -> Result<Headers, Error> {
    let count = number(&mut plain)?;
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = text(&mut plain)?.to_ascii_lowercase();
        headers.push((name, text(&mut plain)?));
    }
    Ok(headers)
}

fn number(plain: &mut &[u8]) -> Result<u32, Error> {
    let (head, tail) = plain.split_first_chunk().ok_or(Error::Headers)?;
    *plain = tail;
    Ok(u32::from_be_bytes(*head))
}

fn text(plain: &mut &[u8]) -> Result<String, Error> {
    let length = number(plain)? as usize;
    let (head, tail) = plain.split_at_checked(length).ok_or(Error::Headers)?;
    *plain = tail;
    Ok(String::from_utf8_lossy(head).into_owned())
}
