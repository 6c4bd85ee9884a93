#![allow(clippy::all)]
mod scenario;
use scenario::*;
use std::time::Instant;
fn size(dir: &std::path::Path, ext: &str) -> u64 {
    database_files(dir, ext).iter().map(|f| std::fs::metadata(f).unwrap().len()).sum()
}
#[tokio::test]
async fn measure() {
    for n in [300u64] {
        let dir = tempfile::tempdir().unwrap();
        let s = open(dir.path());
        let t = Instant::now();
        for k in 0..n {
            let u = user(&format!("{}", k % 610));
            new(s.append(append(observation(&u, k / 610 + 1))).unwrap()).durable().await.unwrap();
        }
        println!(
            "single writer: {:?} per durable append; wal {} B/rec",
            t.elapsed() / n as u32,
            size(dir.path(), "log") / n
        );
        drop(s);
    }
    let dir = tempfile::tempdir().unwrap();
    let s = open(dir.path());
    let n = 2_000_000u64;
    let t = Instant::now();
    let mut last = None;
    for k in 0..n {
        let u = user(&format!("{}", k % 6100));
        let mut r = observation(&u, k / 6100 + 1);
        r.label = ((k * 7919) % 10) as f32 / 2.0;
        r.timestamp.0 += (k * 37) as i64;
        r.predictions[0].predicted = ((k * 104729) % 1000003) as f32 / 3e5;
        r.item = Some(item(&format!("{}", (k * 7919) % 9000)));
        loop {
            match s.append(append(r.clone())) {
                Ok(a) => {
                    last = Some(new(a));
                    break;
                }
                Err(_) => {
                    last.as_ref().unwrap().durable().await.unwrap();
                }
            }
        }
        if k == 200_000 {
            last.as_ref().unwrap().durable().await.unwrap();
            println!("grouped wal {} B/rec, commits {:?}", size(dir.path(), "log") / 200_000, s.counters());
        }
    }
    last.unwrap().durable().await.unwrap();
    println!("bulk: {:.0} rec/s {:?}", n as f64 / t.elapsed().as_secs_f64(), s.counters());
    let t = Instant::now();
    let h = s.history(&stream("films"), &user("5")).unwrap();
    println!("history of {} in {:?}", h.len(), t.elapsed());
    drop(s);
    println!("sst {} B/rec", size(dir.path(), "sst") / n);
    for _ in 0..3 {
        let t = Instant::now();
        let s = open(dir.path());
        println!("open {:?} = {:.0} rec/s", t.elapsed(), n as f64 / t.elapsed().as_secs_f64());
        drop(s);
    }
    let s = open(dir.path());
    let t = Instant::now();
    let c = log_of(&s, &stream("films")).len();
    println!("scan+decode {:.0} rec/s", c as f64 / t.elapsed().as_secs_f64());
}
#[tokio::test]
async fn writers64() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let t = Instant::now();
    let ws: Vec<_> = (0..64)
        .map(|w| {
            let storage = storage.clone();
            tokio::spawn(async move {
                for e in 1..=200 {
                    new(storage.append(append(observation(&user(&format!("user-{w}")), e))).unwrap())
                        .durable()
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for w in ws {
        w.await.unwrap();
    }
    println!("64 writers: {:?} {:.0} rec/s", storage.counters(), 12800.0 / t.elapsed().as_secs_f64());
}
