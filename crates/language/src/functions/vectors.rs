//! Similarity of two vectors of `float`, between 0 and 1: `similarity_cosine`,
//! `similarity_euclidean` and `similarity_dot_product`.

use crate::error::InvalidRequest;

/// The similarity function.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Similarity {
    Cosine,
    Euclidean,
    DotProduct,
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect()
}

/// The similarity of two vectors of the same dimension.
pub(super) fn similarity(
    kind: Similarity,
    name: &str,
    one: &[u8],
    other: &[u8],
) -> Result<Vec<u8>, InvalidRequest> {
    let (one, other) = (floats(one), floats(other));
    let pairs = || one.iter().zip(&other);
    let value = match kind {
        Similarity::DotProduct => (1.0 + pairs().fold(0.0, |sum, (a, b)| sum + a * b)) / 2.0,
        Similarity::Euclidean => {
            1.0 / (1.0 + pairs().fold(0.0, |sum: f32, (a, b)| sum + (a - b) * (a - b)))
        }
        Similarity::Cosine => {
            if [&one, &other].iter().any(|vector| vector.iter().all(|number| *number == 0.0)) {
                return Err(InvalidRequest::new(format!(
                    "Function system.{name} doesn't support all-zero vectors."
                )));
            }
            let (mut product, mut left, mut right) = (0.0_f32, 0.0_f32, 0.0_f32);
            for (a, b) in pairs() {
                (product, left, right) = (product + a * b, left + a * a, right + b * b);
            }
            // The product of the sums is a double, as in Cassandra.
            let cosine = f64::from(product) / (f64::from(left) * f64::from(right)).sqrt();
            (1.0 + cosine as f32) / 2.0
        }
    };
    Ok(value.to_be_bytes().to_vec())
}
