use cowmlx::{Event, Finish, GenerationParams, Status};

use crate::support::{context, model, said, says};

#[test]
fn a_chat_answers_in_events() {
    let mut events = Vec::new();
    let stats =
        context().chat(&says("What colour is a fox?"), None, &GenerationParams::new(), |e| {
            events.push(e.into_owned());
            true
        });
    assert_eq!(said(&events), "A fox is red.");
    assert_eq!(events.last(), Some(&Event::End(Finish::Stop)));
    assert!(stats.unwrap().generated_tokens > 3);
}

#[test]
fn a_chat_goes_on_from_what_the_context_holds() {
    let mut context = context();
    let fox = r#"{"role": "user", "content": "What colour is a fox?"}"#;
    let red = r#"{"role": "assistant", "content": "A fox is red."}"#;
    let eat = r#"{"role": "user", "content": "And what does it eat?"}"#;
    context.chat(&format!("[{fox}]"), None, &GenerationParams::new(), |_| true).unwrap();
    let both = format!("[{fox}, {red}, {eat}]");
    let stats = context.chat(&both, None, &GenerationParams::new(), |_| true).unwrap();
    assert!(stats.reused_tokens > 10, "{stats:?}");
}

#[test]
fn options_reach_the_template() {
    let options = r#"{"add_generation_prompt": false}"#;
    let without = model().chat_prompt(&says("Hello"), Some(options)).unwrap();
    let with = model().chat_prompt(&says("Hello"), None).unwrap();
    assert!(with.len() > without.len() && with.starts_with(&without));
}

#[test]
fn a_false_cancels_a_chat() {
    let mut context = context();
    let mut count = 0;
    let result = context.chat(&says("Tell me a story."), None, &GenerationParams::new(), |_| {
        count += 1;
        false
    });
    assert_eq!((result.unwrap_err().status(), count), (Status::Canceled, 1));
}

#[test]
fn malformed_messages_are_refused_with_their_place() {
    let error = model().chat_prompt("[{]", None).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("column"), "{error}");
}

#[test]
fn options_with_a_nul_are_refused() {
    let error = context().chat("[]", Some("{}\0"), &GenerationParams::new(), |_| true).unwrap_err();
    assert_eq!(error.message(), "Context::chat: options has a NUL byte at 2");
}
