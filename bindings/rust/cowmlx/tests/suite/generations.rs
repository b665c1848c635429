use std::ptr::null;

use cowmlx::{Array, Context, Finish, GenerationParams, Grammar, Status, sys};

use crate::support::{context, model, pieces, prompt, runtime, story, text, tokens};

/// The tokens that a C host gets.
fn tokens_in_c(prompt: &[i32]) -> Vec<i32> {
    let (mut context, mut tokens) = (0, Vec::new());
    let mut piece = sys::cow_mlx_piece {
        struct_size: size_of::<sys::cow_mlx_piece>(),
        token: -1,
        logprob: 0.0,
        finish: 0,
    };
    let (mut buffer, mut length) = ([0u8; 256], 0);
    // SAFETY: as the header says.
    unsafe {
        assert_eq!(sys::cow_mlx_context_create(model().as_raw(), null(), &mut context), 0);
        assert_eq!(sys::cow_mlx_context_begin(context, prompt.as_ptr(), prompt.len(), null()), 0);
        let (text, size) = (buffer.as_mut_ptr().cast(), buffer.len());
        while sys::cow_mlx_context_next(context, text, size, &mut length, &mut piece) == 0 {
            tokens.push(piece.token);
        }
        assert_eq!(sys::cow_mlx_context_free(context), 0);
    }
    tokens
}

#[test]
fn the_tokens_are_those_of_a_c_host() {
    let mut context = context();
    let begun = context.begin(&story(), &GenerationParams::new()).unwrap();
    let pieces = pieces(begun);
    assert!(pieces.len() > 20);
    assert_eq!(tokens(&pieces), tokens_in_c(&story()));
}

#[test]
fn a_generation_in_one_call_gives_the_text_of_the_pieces() {
    let (mut one, mut other) = (context(), context());
    let expected = text(&pieces(one.begin(&story(), &GenerationParams::new()).unwrap()));
    let mut text = String::new();
    let stats = other.generate(&story(), &GenerationParams::new(), |part| {
        text += part;
        true
    });
    assert_eq!(text, expected);
    assert_eq!(stats.unwrap().generated_tokens, one.stats().unwrap().generated_tokens);
}

#[test]
fn a_generation_ends_once_and_tells_why() {
    let mut context = context();
    let mut generation = context.begin(&story(), &GenerationParams::new().max_tokens(3)).unwrap();
    assert_eq!(generation.finish(), None);
    assert_eq!(generation.by_ref().count(), 3);
    assert_eq!(generation.finish(), Some(Finish::Length));
    assert!(generation.next().is_none());
    assert_eq!(generation.stats().unwrap().generated_tokens, 3);
}

#[test]
fn an_end_token_is_no_piece_but_is_told() {
    let mut context = context();
    let question = prompt("What colour is a fox?");
    let mut generation = context.begin(&question, &GenerationParams::new()).unwrap();
    assert_eq!(generation.last_token(), None);
    let text: String = generation.by_ref().map(|piece| piece.unwrap().text).collect();
    assert_eq!(text, "A fox is red.");
    assert_eq!(generation.finish(), Some(Finish::Stop));
    assert!(model().is_end(generation.last_token().unwrap()).unwrap());
}

#[test]
fn a_generation_is_resumed_where_it_was_left() {
    let params = GenerationParams::new().max_tokens(20);
    let (mut one, mut other) = (context(), context());
    let expected = tokens(&pieces(one.begin(&story(), &params).unwrap()));
    let first: Vec<_> =
        other.begin(&story(), &params).unwrap().take(7).map(|p| p.unwrap()).collect();
    let rest = pieces(other.resume());
    assert_eq!([tokens(&first), tokens(&rest)].concat(), expected);
}

#[test]
fn nothing_is_resumed_before_a_begin() {
    let mut context = context();
    let mut generation = context.resume();
    let error = generation.next().unwrap().unwrap_err();
    assert_eq!(error.status(), Status::InvalidState);
    assert!(generation.next().is_none(), "nothing comes behind an error");
}

#[test]
fn a_generation_goes_on_in_another_thread() {
    let mut context = context();
    let expected = text(&pieces(context.begin(&story(), &GenerationParams::new()).unwrap()));
    let mut generation = context.begin(&story(), &GenerationParams::new()).unwrap();
    let first = generation.next().unwrap().unwrap().text;
    let rest = std::thread::scope(|scope| scope.spawn(|| text(&pieces(generation))).join());
    assert_eq!(first + &rest.unwrap(), expected);
}

#[test]
fn logprobs_come_with_each_piece() {
    let mut context = context();
    let params = GenerationParams::new().max_tokens(4).logprobs(3);
    let mut generation = context.begin(&story(), &params).unwrap();
    for _ in 0..4 {
        let piece = generation.next().unwrap().unwrap();
        let best = piece.alternatives[0];
        assert_eq!(piece.alternatives.len(), 3);
        assert_eq!(best.token, piece.token, "greedy");
        assert!((best.logprob - piece.logprob.unwrap()).abs() < 1e-4);
        assert_eq!(generation.logprobs().unwrap(), piece.alternatives);
    }
}

#[test]
fn a_prompt_is_scored() {
    let context = context();
    let prompt = story();
    let rows = context.prompt_logprobs(&prompt, 2).unwrap();
    assert_eq!((rows.len(), rows[1].len()), (prompt.len(), 3));
    assert_eq!(rows[1][0].token, prompt[1]);
    assert!(rows[0][0].logprob.is_nan() && rows[1][0].logprob <= rows[1][1].logprob);
    let logits = context.prompt_logits(&prompt, &[0, 1]).unwrap();
    let states = context.hidden_states(&prompt).unwrap();
    assert!(!logits.is_empty() && states.len() % prompt.len() == 0);
    let (perplexity, _, scored) = context.perplexity("Once upon a time", 0).unwrap();
    assert!(perplexity > 1.0 && scored > 0);
    assert_eq!(context.prompt_logprobs(&[], 0).unwrap_err().status(), Status::InvalidArgument);
}

#[test]
fn rows_of_another_width_are_refused() {
    let mut context = context();
    let rows = Array::new(runtime(), &[0.0f32, 1.0], &[1, 2]).unwrap();
    let refused = context.begin_embeddings(&[-1], &rows, &GenerationParams::new());
    assert_eq!(refused.unwrap_err().status(), Status::InvalidArgument);
}

#[test]
fn many_logprobs_fit() {
    let mut context = context();
    let params = GenerationParams::new().max_tokens(1).logprobs(100);
    let pieces = pieces(context.begin(&story(), &params).unwrap());
    assert_eq!(pieces[0].alternatives.len(), 100);
}

#[test]
fn without_logprobs_there_are_none() {
    let mut context = context();
    let params = GenerationParams::new().max_tokens(1);
    let pieces = pieces(context.begin(&story(), &params).unwrap());
    assert_eq!((pieces[0].logprob, pieces[0].alternatives.len()), (None, 0));
    assert_eq!(context.logprobs().unwrap_err().status(), Status::InvalidState);
}

#[test]
fn logits_predict_the_greedy_token() {
    let mut context = context();
    context.begin(&story(), &GenerationParams::new().max_tokens(0)).unwrap();
    let logits = context.logits().unwrap();
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
    let mut generation = context.begin(&story(), &GenerationParams::new()).unwrap();
    let next = generation.next().unwrap().unwrap();
    assert_eq!(next.token, best as i32);
}

#[test]
fn stop_texts_end_a_generation() {
    let mut context = context();
    let params = GenerationParams::new().stop(["upon", "nonsense"]);
    let mut generation = context.begin(&story(), &params).unwrap();
    let text: String = generation.by_ref().map(|piece| piece.unwrap().text).collect();
    assert_eq!(text, "Once ");
    assert_eq!(generation.finish(), Some(Finish::StopText));
}

#[test]
fn a_bias_forbids_a_token() {
    let mut context = context();
    let first = pieces(context.begin(&story(), &GenerationParams::new().max_tokens(1)).unwrap());
    let forbidden = first[0].token;
    let params = GenerationParams::new().max_tokens(1).bias([(forbidden, f32::NEG_INFINITY)]);
    let other = pieces(context.begin(&story(), &params).unwrap());
    assert_ne!(other[0].token, forbidden);
}

#[test]
fn an_output_matches_its_grammar() {
    let yes_or_no = r#"start: "yes" | "no""#.to_owned();
    for grammar in [
        Grammar::Regex("yes|no".into()),
        Grammar::JsonSchema(r#"{"enum": ["yes", "no"]}"#.into()),
        Grammar::Gbnf(r#"root ::= "yes" | "no""#.into()),
        Grammar::Lark(yes_or_no),
    ] {
        let mut context = context();
        let params = GenerationParams::new().grammar(grammar.clone());
        let text = text(&pieces(context.begin(&story(), &params).unwrap()));
        assert!(["yes", "no"].contains(&text.trim_matches('"')), "{grammar:?}: {text}");
    }
}

#[test]
fn a_draft_changes_nothing_but_is_counted() {
    let (mut one, mut other) = (context(), context());
    let expected = tokens(&pieces(one.begin(&story(), &GenerationParams::new()).unwrap()));
    let params = GenerationParams::new().draft(model()).draft_tokens(3);
    let drafted = tokens(&pieces(other.begin(&story(), &params).unwrap()));
    assert_eq!(drafted, expected);
    let stats = other.stats().unwrap();
    assert!(stats.drafted_tokens >= stats.accepted_tokens && stats.accepted_tokens > 0);
}

#[test]
fn a_seed_gives_the_same_tokens_again() {
    let model = model();
    let params = GenerationParams::new().temperature(1.0).seed(7).max_tokens(30);
    let draw = |params: &GenerationParams<'_>| {
        let mut context = Context::new(&model).unwrap();
        tokens(&pieces(context.begin(&story(), params).unwrap()))
    };
    assert_eq!(draw(&params), draw(&params));
    assert_ne!(draw(&params), draw(&params.clone().seed(8)));
}

#[test]
fn every_parameter_of_sampling_reaches_the_library() {
    let refused = [
        ("temperature", GenerationParams::new().temperature(-1.0)),
        ("top_p", GenerationParams::new().top_p(2.0)),
        ("min_p", GenerationParams::new().min_p(2.0)),
        ("typical_p", GenerationParams::new().typical_p(2.0)),
        ("top_k", GenerationParams::new().top_k(-1)),
        ("xtc_probability", GenerationParams::new().xtc_probability(2.0)),
        ("xtc_threshold", GenerationParams::new().xtc_probability(0.5).xtc_threshold(2.0)),
        ("repetition_penalty", GenerationParams::new().repetition_penalty(-1.0)),
        ("repetition_window", GenerationParams::new().repetition_penalty(2.0).repetition_window(0)),
        ("presence_penalty", GenerationParams::new().presence_penalty(f32::NAN)),
        ("presence_window", GenerationParams::new().presence_penalty(1.0).presence_window(0)),
        ("frequency_penalty", GenerationParams::new().frequency_penalty(f32::NAN)),
        ("frequency_window", GenerationParams::new().frequency_penalty(1.0).frequency_window(0)),
        ("logprobs", GenerationParams::new().logprobs(-1)),
        ("draft_tokens", GenerationParams::new().draft_tokens(65)),
        ("timeout", GenerationParams::new().timeout(-1.0)),
        ("dry_multiplier", GenerationParams::new().dry_multiplier(-1.0)),
        ("dry_base", GenerationParams::new().dry_base(0.5)),
        ("dry_allowed_length", GenerationParams::new().dry_allowed_length(0)),
        ("dry_penalty_last_n", GenerationParams::new().dry_penalty_last_n(-2)),
        ("dry_sequence_breakers[1]", GenerationParams::new().dry_sequence_breakers(["a", ""])),
        ("top_n_sigma", GenerationParams::new().top_n_sigma(-1.0)),
        ("mirostat", GenerationParams::new().mirostat(1)),
        ("mirostat_tau", GenerationParams::new().mirostat_tau(0.0)),
        ("mirostat_eta", GenerationParams::new().mirostat_eta(0.0)),
        ("dynatemp_range", GenerationParams::new().dynatemp_range(-1.0)),
        ("dynatemp_exponent", GenerationParams::new().dynatemp_exponent(0.0)),
        ("bias", GenerationParams::new().bias([(-1, 0.0)])),
        ("stop", GenerationParams::new().stop([""])),
        ("grammar", GenerationParams::new().grammar(Grammar::Regex("(".into()))),
    ];
    for (name, params) in refused {
        let mut context = context();
        let error = context.begin(&story(), &params).expect_err(name);
        assert_eq!(error.status(), Status::InvalidArgument, "{name}: {error}");
        assert!(error.message().contains(name), "{name}: {error}");
    }
}

#[test]
fn a_timeout_ends_a_generation() {
    let params = GenerationParams::new().timeout(1e-9);
    let error = context().begin(&story(), &params).map(drop).unwrap_err();
    assert_eq!(error.status(), Status::TimedOut);
}

#[test]
fn what_is_empty_comes_back_empty() {
    assert!(context().tokens().unwrap().is_empty());
    assert!(model().tokenize("", cowmlx::Special::NONE).unwrap().is_empty());
    assert_eq!(model().detokenize(&[], cowmlx::Special::NONE).unwrap(), "");
}
