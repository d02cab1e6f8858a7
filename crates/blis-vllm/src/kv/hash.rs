//! The hashes that upstream names blocks by, byte for byte.
//!
//! upstream: vllm `v1/core/kv_cache_utils.py::hash_block_tokens`, `init_none_hash`, `maybe_convert_block_hash`
//! upstream: vllm `utils/hashing.py::sha256`, `sha256_cbor`
//!
//! A block's hash is SHA-256 over its parent's hash, its tokens and the absence of further keys, written as Python pickles such a
//! tuple (protocol 5) or as canonical CBOR. The cache itself finds blocks by the numbers of [`super::chain`]; only what is
//! published needs these. Left out: xxHash, keys of adapters, salts and other inputs than text.

use sha2::{Digest, Sha256};

/// The hash of a block and of everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHash(pub [u8; 32]);

impl BlockHash {
    /// What events carry of it: the low 64 bits.
    pub fn published(self) -> u64 {
        u64::from_be_bytes(*self.0.last_chunk().expect("a hash has more than eight bytes"))
    }
}

/// How a tuple is written before it is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Python's pickle, protocol 5.
    Pickle,
    /// Canonical CBOR.
    Cbor,
}

impl Encoding {
    /// The hash that stands before a first block, from the seed's text.
    pub fn root(self, seed: &str) -> BlockHash {
        let length = u8::try_from(seed.len()).expect("a seed is a short text");
        let mut bytes = Vec::new();
        match self {
            Self::Pickle => {
                bytes.extend([0x8c, length]);
                bytes.extend(seed.as_bytes());
                bytes.extend(b"\x94.");
                bytes = framed(&bytes);
            }
            Self::Cbor => {
                cbor_head(&mut bytes, 3, length.into());
                bytes.extend(seed.as_bytes());
            }
        }
        digest(&bytes)
    }

    /// The hash of a full block of tokens behind another.
    pub fn block(self, parent: BlockHash, tokens: &[u32]) -> BlockHash {
        match self {
            Self::Pickle => digest(&pickled(parent, tokens)),
            Self::Cbor => {
                let mut bytes = vec![0x83];
                cbor_head(&mut bytes, 2, 32);
                bytes.extend(parent.0);
                cbor_head(&mut bytes, 4, u32::try_from(tokens.len()).expect("a block is short"));
                for token in tokens {
                    cbor_head(&mut bytes, 0, *token);
                }
                bytes.push(0xf6);
                digest(&bytes)
            }
        }
    }

    /// The hashes of the full blocks of `size` tokens, in order.
    pub fn blocks(self, root: BlockHash, tokens: &[u32], size: u32) -> Vec<BlockHash> {
        let mut parent = root;
        let next = |block: &[u32]| {
            parent = self.block(parent, block);
            parent
        };
        tokens.chunks_exact(size as usize).map(next).collect()
    }
}

fn digest(bytes: &[u8]) -> BlockHash {
    BlockHash(Sha256::digest(bytes).into())
}

/// `(parent, tokens, None)`. Every object but small integers and none is put into the memo.
fn pickled(parent: BlockHash, tokens: &[u32]) -> Vec<u8> {
    let mut bytes = vec![b'C', 32];
    bytes.extend(parent.0);
    bytes.push(0x94);
    match tokens.len() {
        0 => bytes.push(b')'),
        count @ 1..=3 => {
            for token in tokens {
                pickled_number(&mut bytes, *token);
            }
            bytes.extend([b"\x85\x86\x87"[count - 1], 0x94]);
        }
        _ => {
            bytes.push(b'(');
            for token in tokens {
                pickled_number(&mut bytes, *token);
            }
            bytes.extend(b"t\x94");
        }
    }
    bytes.extend(b"N\x87\x94.");
    framed(&bytes)
}

/// Opcodes behind the protocol and the length of their only frame.
fn framed(opcodes: &[u8]) -> Vec<u8> {
    assert!(opcodes.len() < 64 << 10, "a block of {} bytes would take a second frame", opcodes.len());
    let mut bytes = vec![0x80, 5, 0x95];
    bytes.extend((opcodes.len() as u64).to_le_bytes());
    bytes.extend(opcodes);
    bytes
}

fn pickled_number(bytes: &mut Vec<u8>, number: u32) {
    let little = number.to_le_bytes();
    match number {
        0..=0xff => bytes.extend([b'K', little[0]]),
        0x100..=0xffff => bytes.extend([b'M', little[0], little[1]]),
        0x1_0000..=0x7fff_ffff => {
            bytes.push(b'J');
            bytes.extend(little);
        }
        // A signed number of five bytes.
        0x8000_0000.. => {
            bytes.extend([0x8a, 5]);
            bytes.extend(little);
            bytes.push(0);
        }
    }
}

/// A major type with its number in the fewest bytes.
fn cbor_head(bytes: &mut Vec<u8>, major: u8, number: u32) {
    let kind = major << 5;
    let big = number.to_be_bytes();
    match number {
        0..=23 => bytes.push(kind | big[3]),
        24..=0xff => bytes.extend([kind | 0x18, big[3]]),
        0x100..=0xffff => bytes.extend([kind | 0x19, big[2], big[3]]),
        0x1_0000.. => {
            bytes.push(kind | 0x1a);
            bytes.extend(big);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// What upstream's own functions gave for some blocks (`oracle/hashes.py`).
    #[derive(Debug, Deserialize)]
    struct Recorded {
        algorithm: String,
        seed: String,
        root: String,
        /// Tokens of each block, with its hash behind the one before.
        chain: Vec<(Vec<u32>, String, u64)>,
    }

    fn hex(hash: BlockHash) -> String {
        let (high, low) = hash.0.split_at(16);
        let number = |half: &[u8]| half.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
        format!("{:032x}{:032x}", number(high), number(low))
    }

    #[test]
    fn blocks_are_hashed_as_upstream_does() {
        let recorded: Vec<Recorded> = serde_json::from_str(include_str!("../../oracle/hashes.json")).unwrap();
        let mut encodings = Vec::new();
        for case in &recorded {
            let encoding = match case.algorithm.as_str() {
                "sha256" => Encoding::Pickle,
                "sha256_cbor" => Encoding::Cbor,
                other => panic!("no case is recorded for {other}"),
            };
            encodings.push(encoding);
            let mut parent = encoding.root(&case.seed);
            assert_eq!(hex(parent), case.root, "{} seeded with {}", case.algorithm, case.seed);
            for (tokens, expected, published) in &case.chain {
                parent = encoding.block(parent, tokens);
                assert_eq!((hex(parent), parent.published()), (expected.clone(), *published), "{} over {tokens:?}", case.algorithm);
            }
        }
        assert!(encodings.contains(&Encoding::Pickle) && encodings.contains(&Encoding::Cbor), "both encodings are recorded");
    }
}
