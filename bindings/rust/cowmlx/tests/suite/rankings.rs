use cowmlx::{RankParams, Status};

use crate::support::model;

const PROMPT: &str = "{instruction} {query} {document}";

fn asked() -> RankParams {
    RankParams::new().prompt(PROMPT).answers("a", "b")
}

#[test]
fn each_document_has_a_score() {
    let found = model().rank("a red fox", &["a fox", "an owl", "a fox"], &asked()).unwrap();
    let scores: Vec<_> = found.rows().map(|row| row[0]).collect();
    assert_eq!((scores.len(), found.labels()), (3, 1));
    assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)));
    assert!((scores[0] - scores[2]).abs() < 1e-4);
    assert_ne!(scores[0], scores[1]);
}

#[test]
fn every_parameter_of_ranking_reaches_the_library() {
    let rank = |params: &RankParams| model().rank("a red fox", &["a fox"], params);
    let plain = rank(&asked()).unwrap().into_values();
    for params in
        [asked().normalize(false), asked().instruction("Find."), asked().answers("b", "a")]
    {
        assert_ne!(rank(&params).unwrap().into_values(), plain, "{params:?}");
    }
    let refused = [
        ("prompt", asked().prompt("{query}")),
        ("yes", asked().answers("", "a")),
        ("batch_tokens", asked().batch_tokens(0)),
        ("max_tokens", asked().max_tokens(usize::MAX)),
        ("instruction", asked().instruction("a\0b")),
    ];
    for (name, params) in refused {
        let error = rank(&params).expect_err(name);
        assert_eq!(error.status(), Status::InvalidArgument, "{name}: {error}");
        assert!(error.message().contains(name), "{name}: {error}");
    }
    assert_eq!(rank(&asked().max_tokens(2)).unwrap_err().status(), Status::ContextFull);
    let cut = asked().max_tokens(8).truncate(true);
    let long = "a fox ".repeat(99);
    assert!(model().rank("a", &[long], &cut.prompt("{query}{document}")).is_ok());
}
