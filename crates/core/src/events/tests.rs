use super::*;

fn with(events: usize) -> EventLog<usize> {
    let mut log = EventLog::default();
    (0..events).for_each(|event| log.push(event, 2));
    log
}

fn all(_: &usize) -> bool {
    true
}

#[test]
fn the_last_thousand_are_kept_and_a_gap_says_what_is_missing() {
    let log = with(EVENTS_MAX);
    let (seq, event) = (1, &0);
    assert_eq!(log.after(0, all), Next::Event { seq, event });
    let log = with(EVENTS_MAX + 7);
    assert_eq!(log.after(3, all), Next::Gap { seq: 7, missed: 4 });
    let (seq, event) = (8, &7);
    assert_eq!(log.after(7, all), Next::Event { seq, event });
    let last = log.last();
    assert_eq!(log.after(last, all), Next::Nothing(last));
}

#[test]
fn what_was_not_asked_for_is_passed_over() {
    let log = with(5);
    let (seq, event) = (4, &3);
    assert_eq!(log.after(0, |e| *e == 3), Next::Event { seq, event });
    assert_eq!(log.after(4, |e| *e == 3), Next::Nothing(5));
}

#[test]
fn bytes_are_bounded_and_events_without_any_cost_none() {
    let mut log = EventLog::default();
    (0..3).for_each(|event| log.push(event, BYTES_MAX / 2));
    assert_eq!(log.after(0, |_| true), Next::Gap { seq: 1, missed: 1 });
    log.push(3, BYTES_MAX + 1);
    assert_eq!(log.after(0, |_| true), Next::Gap { seq: 4, missed: 4 });
    assert_eq!(log.kept(), (0, 0));
    (0..EVENTS_MAX).for_each(|event| log.push(event, 0));
    assert_eq!(log.kept(), (EVENTS_MAX, 0));
}

#[test]
fn what_nobody_can_be_told_of_is_a_gap() {
    let mut log = with(3);
    log.skip(0);
    assert_eq!(log.last(), 3);
    log.skip(5);
    log.push(3, 0);
    assert_eq!(log.after(2, all), Next::Gap { seq: 8, missed: 6 });
    let (seq, event) = (9, &3);
    assert_eq!(log.after(8, all), Next::Event { seq, event });
}
