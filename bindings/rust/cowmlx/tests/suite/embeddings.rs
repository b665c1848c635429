use cowmlx::{EmbedParams, Pooling, Status};

use crate::support::model;

#[test]
fn each_text_has_a_vector_of_length_one() {
    let found = model().embed(&["a fox", "an owl", "a fox"], &EmbedParams::new()).unwrap();
    let rows: Vec<_> = found.rows().collect();
    assert_eq!((rows.len(), found.dims()), (3, 128));
    let likeness = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    assert!((likeness(rows[0], rows[2]) - 1.0).abs() < 1e-4);
    assert!(likeness(rows[0], rows[1]) < 0.999);
    for row in rows {
        assert!((row.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-4);
    }
}

#[test]
fn parameters_change_the_vectors() {
    let plain = model().embed(&["a red fox"], &EmbedParams::new()).unwrap().into_values();
    for params in [
        EmbedParams::new().pooling(Pooling::Last),
        EmbedParams::new().pooling(Pooling::Cls),
        EmbedParams::new().normalize(false),
        EmbedParams::new().add_special(false),
    ] {
        let other = model().embed(&["a red fox"], &params).unwrap().into_values();
        assert_ne!(other, plain, "{params:?}");
    }
}

#[test]
fn a_batch_of_no_tokens_is_refused() {
    let error = model().embed(&["a"], &EmbedParams::new().batch_tokens(0)).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}
