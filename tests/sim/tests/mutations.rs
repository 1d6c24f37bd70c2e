//! The oracle bites: each promise of the core is broken on purpose, and each time the oracle says
//! which one.

use std::ops::Range;

use peerbus_core::broker::BrokerMutation;
use peerbus_peer::session::SessionMutation;
use peerbus_sim::{Options, OutsideMutation, run};

/// Seeds in which a fault must show.
const SEEDS: u64 = 200;

/// Breaks a rule and expects `rule` in the first failure of some seed. A failure of another rule
/// would mean that the oracle blames the wrong one.
fn caught(broken: Options, rule: &str) {
    caught_in_time(broken, rule, "");
}

/// The same of a fault that shows in some worlds only by what comes of it in the end: `late`.
fn caught_in_time(broken: Options, rule: &str, late: &str) {
    caught_in(1..SEEDS + 1, broken, rule, late);
}

fn caught_in(seeds: Range<u64>, broken: Options, rule: &str, late: &str) {
    for seed in seeds.clone() {
        let report = run(seed, broken);
        if let Some(failure) = &report.failure
            && failure.rule != late
        {
            assert_eq!(failure.rule, rule, "{broken:?}: {}", report.sentence());
            return;
        }
    }
    panic!("{broken:?} was not caught in the seeds {seeds:?}");
}

fn broker(mutation: BrokerMutation) -> Options {
    Options {
        mutation: Some(mutation),
        ..Options::default()
    }
}

fn outside(mutation: OutsideMutation) -> Options {
    Options {
        outside_mutation: Some(mutation),
        ..Options::default()
    }
}

fn session(mutation: SessionMutation) -> Options {
    Options {
        peer_mutation: Some(mutation),
        ..Options::default()
    }
}

#[test]
fn i1_outputs_that_leave_before_the_commit() {
    caught(broker(BrokerMutation::ReleaseEarly), "I1");
}

#[test]
fn a_message_for_a_group_that_passes_a_member_over() {
    caught(broker(BrokerMutation::SkipMember), "broadcast");
}

#[test]
fn a_membership_that_is_not_written_down() {
    caught(outside(OutsideMutation::ForgetGroups), "group");
}

#[test]
fn a_job_that_comes_to_the_next_member_as_new() {
    caught_in_time(broker(BrokerMutation::PassAsNew), "lease", "again");
}

#[test]
fn a_job_that_two_members_have() {
    caught(broker(BrokerMutation::TwoHolders), "lease");
}

#[test]
fn a_job_that_stays_with_a_member_who_has_left() {
    caught(broker(BrokerMutation::KeepLease), "lease");
}

#[test]
fn a_request_that_ends_when_it_is_read() {
    caught(broker(BrokerMutation::EndRead), "request");
}

#[test]
fn a_request_that_waits_for_ever() {
    caught(broker(BrokerMutation::WaitForEver), "request");
}

#[test]
fn a_request_that_goes_on_when_it_was_answered() {
    caught(broker(BrokerMutation::IgnoreAnswer), "request");
}

#[test]
fn a_job_that_stays_with_a_member_who_does_not_come_to_it() {
    caught(broker(BrokerMutation::KeepLate), "lease");
}

#[test]
fn a_member_without_room_of_which_the_sender_does_not_hear() {
    caught_in(0..400, outside(OutsideMutation::HideFull), "broadcast", "");
}

#[test]
fn i2_an_acceptance_that_is_not_audited() {
    caught(broker(BrokerMutation::SkipAudit), "I2");
}

#[test]
fn i3_a_live_message_that_overtakes_the_backlog() {
    caught(broker(BrokerMutation::Overtake), "I3");
}

#[test]
fn i4_a_debt_that_vanishes_with_its_holder() {
    caught(broker(BrokerMutation::ForgetOnClose), "I4");
}

#[test]
fn i4_a_rename_that_settles_what_its_peer_holds() {
    caught(outside(OutsideMutation::RenameLoses), "I4");
}

#[test]
fn i19_ages_that_go_by_the_wall_clock() {
    caught(outside(OutsideMutation::AgeByWall), "I19");
}

#[test]
fn a_name_that_ends_without_a_word_to_the_senders() {
    // A sender that has gone is told nothing: then it shows in what is kept.
    caught_in_time(outside(OutsideMutation::RetireSilent), "notice", "fate");
}

#[test]
fn how_deliveries_ended_is_forgotten() {
    caught(outside(OutsideMutation::ForgetFate), "fate");
}

#[test]
fn i21_a_message_that_is_read_and_gone() {
    caught(outside(OutsideMutation::ForgetTexts), "history");
    caught(outside(OutsideMutation::KeepFleeting), "history");
}

#[test]
fn i5_deliveries_beyond_the_window() {
    caught(broker(BrokerMutation::IgnoreWindow), "I5");
}

#[test]
fn i5_a_sender_that_takes_the_whole_window() {
    caught(broker(BrokerMutation::IgnoreShare), "I5");
}

#[test]
fn i5_mail_that_takes_what_is_kept_for_others() {
    caught(broker(BrokerMutation::KeepNothing), "I5");
}

#[test]
fn i13_a_broker_that_forgets_what_it_delivered_when_it_ends() {
    caught(outside(OutsideMutation::ForgetDelivered), "again");
}

#[test]
fn i6_an_envelope_that_is_altered() {
    caught(outside(OutsideMutation::AlterEnvelope), "I6");
}

#[test]
fn i7_a_takeover_that_loses_mail() {
    // What nobody is given is still owed in the end.
    caught_in_time(broker(BrokerMutation::TakeoverLoses), "I7", "I8");
}

#[test]
fn i8_an_ack_without_effect() {
    caught(broker(BrokerMutation::AckWithoutEffect), "I8");
}

#[test]
fn i10_a_spoofed_sender() {
    caught(broker(BrokerMutation::TrustFrom), "I10");
}

#[test]
fn mail_that_a_full_disk_takes() {
    caught(outside(OutsideMutation::IgnoreSpace), "space");
}

#[test]
fn i20_mail_that_was_read_and_goes_on_counting() {
    caught(broker(BrokerMutation::ForgetOwed), "quota");
}

#[test]
fn i20_a_token_that_fills_a_queue_with_what_it_sends() {
    // Of a message for many it shows in whom that reaches.
    caught_in_time(broker(BrokerMutation::FillQueue), "quota", "broadcast");
}

#[test]
fn a_peer_that_fills_the_audit_chain() {
    caught(broker(BrokerMutation::AuditAll), "audit");
}

#[test]
fn audit_records_that_are_neither_written_nor_told() {
    caught(broker(BrokerMutation::HideExcess), "audit");
}

#[test]
fn i12_a_name_of_another_token_that_gives_way() {
    caught(broker(BrokerMutation::ForgetOthers), "I12");
}

#[test]
fn i12_a_name_that_gives_way_with_its_mail() {
    caught(broker(BrokerMutation::ForgetMail), "I12");
}

#[test]
fn a_token_that_sends_without_the_right_to() {
    caught(outside(OutsideMutation::IgnoreRights), "rights");
}

#[test]
fn i12_mail_for_nobody() {
    caught(broker(BrokerMutation::AcceptUnknown), "I12");
}

#[test]
fn i8_a_session_that_shows_a_message_twice() {
    caught(session(SessionMutation::ShowTwice), "I8");
}

#[test]
fn i8_a_session_that_acks_what_its_host_has_not_seen() {
    caught(session(SessionMutation::AckUnread), "I8");
}

#[test]
fn a_session_that_acks_statements_that_its_host_has_not_told() {
    caught(session(SessionMutation::AckUntold), "notice");
}

#[test]
fn a_session_that_shows_what_does_not_verify() {
    caught(session(SessionMutation::SkipVerify), "verify");
}
