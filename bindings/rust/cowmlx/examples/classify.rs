//! Says where somebody speaks: `classify NETWORK.onnx SOUND.wav`.
//!
//! The network is Silero VAD, `silero_vad_op18_ifless.onnx` of the Python package silero-vad. The
//! sound has 16,000 samples a second, of 16 bits, on one channel. Each 32 ms go through the network
//! with the 64 samples before them, and with the state that it gave for the last ones.

use std::error::Error;
use std::{env, fs};

use cowmlx::{Array, Input, Program, ProgramParams, RunParams, Runtime};

const RATE: usize = 16_000;
const BEFORE: usize = 64;
const SAMPLES: usize = 512;
const STATE: [i64; 3] = [2, 1, 128];
/// Probabilities at which speech begins, and ends.
const BEGINS: f32 = 0.5;
const ENDS: f32 = 0.35;

/// Bytes of a file at a place, if it has so many.
fn at<const N: usize>(data: &[u8], place: usize) -> Option<[u8; N]> {
    data.get(place..place.checked_add(N)?)?.try_into().ok()
}

/// Samples of a WAV file as numbers from -1 to 1; None if it has others.
fn samples(data: &[u8]) -> Option<Vec<f32>> {
    if at(data, 0)? != *b"RIFF" || at(data, 8)? != *b"WAVE" {
        return None;
    }
    let (mut place, mut fits) = (12, false);
    loop {
        let size = usize::try_from(u32::from_le_bytes(at(data, place + 4)?)).ok()?;
        let (name, begin) = (at(data, place)?, place + 8);
        if name == *b"fmt " {
            fits = at(data, begin)? == [1, 0, 1, 0]
                && u32::from_le_bytes(at(data, begin + 4)?) as usize == RATE
                && at(data, begin + 14)? == [16, 0];
        }
        if name == *b"data" && fits {
            let end = data.len().min(begin + size);
            let pairs = data[begin..end].chunks_exact(2);
            return Some(
                pairs.map(|b| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32768.0).collect(),
            );
        }
        place = begin + size + size % 2;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().collect();
    let [_, network, sound] = &arguments[..] else {
        return Err("usage: classify NETWORK.onnx SOUND.wav".into());
    };
    let samples = samples(&fs::read(sound)?)
        .ok_or("SOUND.wav must have 16,000 samples a second, of 16 bits, on one channel")?;

    let runtime = Runtime::start()?;
    let params = ProgramParams::new().fixed(r#"{"sr": 16000}"#);
    let network = Program::load(&runtime, network, &params)?;
    let mut state = Array::new(&runtime, &[0f32; 256], &STATE)?;
    let mut window = [0f32; BEFORE + SAMPLES];
    let seconds = |place: usize| place as f32 / RATE as f32;
    let mut began = None;
    for (count, part) in samples.chunks(SAMPLES).enumerate() {
        window.copy_within(SAMPLES.., 0);
        window[BEFORE..].fill(0.0);
        window[BEFORE..BEFORE + part.len()].copy_from_slice(part);
        let inputs = [Input::new(&window, &[1, 576])?, Input::from(&state)];
        let mut outputs = network.run(&inputs, 2, &RunParams::new())?.into_iter();
        let speaks = outputs.next().ok_or("no probability")?.to_vec::<f32>()?[0];
        state = outputs.next().ok_or("no state")?;
        match began {
            None if speaks > BEGINS => began = Some(count * SAMPLES),
            Some(from) if speaks < ENDS => {
                println!("speech from {:.2} to {:.2} s", seconds(from), seconds(count * SAMPLES));
                began = None;
            }
            _ => {}
        }
    }
    if let Some(from) = began {
        println!("speech from {:.2} s to the end", seconds(from));
    }
    Ok(())
}
