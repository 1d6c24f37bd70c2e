use super::*;

fn chain_of(key: &AuditKey, blocks: u64) -> (Vec<Block>, ChainHead) {
    let mut head = ChainHead::new(key);
    let mut log = AuditLog::default();
    let made = (1..=blocks)
        .map(|n| {
            log.deliver(Seq(n), PeerId(1));
            log.seal(key, &mut head, Stamp::default())
        })
        .collect();
    (made, head)
}

fn verify(key: &AuditKey, head: Option<ChainHead>, blocks: &[Block]) -> Result<ChainHead, Break> {
    let mut verifier = Verifier::new(key, head)?;
    blocks.iter().try_for_each(|b| verifier.block(b))?;
    verifier.finish()
}

#[test]
fn a_whole_chain_verifies_and_every_damage_is_named() {
    let key = AuditKey([7; 32]);
    let (blocks, head) = chain_of(&key, 5);
    assert_eq!(verify(&key, Some(head.clone()), &blocks), Ok(head.clone()));

    let mut altered = blocks.clone();
    altered[2].events = altered[2].events.replace('1', "2");
    let broken = verify(&key, Some(head.clone()), &altered);
    assert_eq!(broken, Err(Break::Block { number: 3 }));

    let short = verify(&key, Some(head.clone()), &blocks[..3]);
    assert_eq!(
        short,
        Err(Break::Short {
            expected: 5,
            found: 3
        })
    );

    let gap = verify(
        &key,
        Some(head.clone()),
        &[blocks[0].clone(), blocks[2].clone()],
    );
    assert_eq!(
        gap,
        Err(Break::Gap {
            expected: 2,
            found: 3
        })
    );

    assert_eq!(verify(&key, None, &[]), Err(Break::NoHead));
    let mut cut = head.clone();
    (cut.blocks, cut.hash) = (3, blocks[2].hash);
    assert_eq!(verify(&key, Some(cut), &blocks[..3]), Err(Break::Head));
    assert_eq!(
        verify(&AuditKey([8; 32]), Some(head), &blocks),
        Err(Break::Head)
    );
}

#[test]
fn a_chain_whose_front_was_dropped_starts_at_its_anchor() {
    let key = AuditKey([7; 32]);
    let (blocks, mut head) = chain_of(&key, 5);
    (head.anchor, head.anchor_hash) = (2, blocks[1].hash);
    head.mac = head.expected_mac(&key);
    assert_eq!(
        verify(&key, Some(head.clone()), &blocks[2..]),
        Ok(head.clone())
    );
    let gap = verify(&key, Some(head), &blocks[3..]);
    assert_eq!(
        gap,
        Err(Break::Gap {
            expected: 3,
            found: 4
        })
    );
}
