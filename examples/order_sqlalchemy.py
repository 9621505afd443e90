"""An order and its job, in one transaction: what an application with SQLAlchemy does."""

from sqlalchemy import Integer, create_engine, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.sql import cast

# libpq reads the address from PGHOST and its kind.
engine = create_engine("postgresql+psycopg://")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)


def enqueue(session, job, payload, key):
    # The arguments up to the key: job, payload, key.
    call = func.jobctl.enqueue(job, cast(payload, JSONB), key)
    return session.scalar(select(call))


def order(session, number):
    session.add(Order(id=number))
    session.flush()
    payload = {"order": number, "note": "it's “ok” $1 %s"}
    return enqueue(session, "send_receipt", payload, f"receipt:{number}")


with Session(engine) as session, session.begin():
    kept = order(session, 1)

try:
    with Session(engine) as session, session.begin():
        order(session, 2)
        raise RuntimeError("the order is refused")
except RuntimeError:
    pass

try:
    with Session(engine) as session:
        enqueue(session, "send_receipt", {}, "receipt:1")
except DBAPIError as error:
    code = error.orig.sqlstate
print(kept, code)
